from django.db import migrations

from partbox.django.operations import Upgrade


class Migration(migrations.Migration):
    dependencies = [("partbox", "0003_marker_oids")]
    operations = [Upgrade(4)]
