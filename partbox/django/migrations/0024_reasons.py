from django.db import migrations

from partbox.django.operations import Upgrade


class Migration(migrations.Migration):
    dependencies = [("partbox", "0023_pauses")]
    operations = [Upgrade(24)]
