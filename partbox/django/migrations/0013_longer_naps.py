from django.db import migrations

from partbox.django.operations import Upgrade


class Migration(migrations.Migration):
    dependencies = [("partbox", "0012_partitions_of_one")]
    operations = [Upgrade(13)]
