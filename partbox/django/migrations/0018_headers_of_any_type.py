from django.db import migrations

from partbox.django.operations import Upgrade


class Migration(migrations.Migration):
    dependencies = [("partbox", "0017_cancellation")]
    operations = [Upgrade(18)]
