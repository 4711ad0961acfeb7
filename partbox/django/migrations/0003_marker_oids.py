from django.db import migrations

from partbox.django.operations import Upgrade


class Migration(migrations.Migration):
    dependencies = [("partbox", "0002_monitoring")]
    operations = [Upgrade(3)]
