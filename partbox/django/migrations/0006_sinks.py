from django.db import migrations

from partbox.django.operations import Upgrade


class Migration(migrations.Migration):
    dependencies = [("partbox", "0005_first_hour")]
    operations = [Upgrade(6)]
