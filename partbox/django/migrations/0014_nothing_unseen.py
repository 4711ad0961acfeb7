from django.db import migrations

from partbox.django.operations import Upgrade


class Migration(migrations.Migration):
    dependencies = [("partbox", "0013_longer_naps")]
    operations = [Upgrade(14)]
