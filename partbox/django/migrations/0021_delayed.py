from django.db import migrations

from partbox.django.operations import Upgrade


class Migration(migrations.Migration):
    dependencies = [("partbox", "0020_snapshot_storage")]
    operations = [Upgrade(21)]
