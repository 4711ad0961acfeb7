from django.db import migrations

from partbox.django.operations import Upgrade


class Migration(migrations.Migration):
    dependencies = [("partbox", "0018_headers_of_any_type")]
    operations = [Upgrade(19)]
