from django.db import migrations

from partbox.django.operations import Upgrade


class Migration(migrations.Migration):
    dependencies = [("partbox", "0008_index_by_id")]
    operations = [Upgrade(9)]
