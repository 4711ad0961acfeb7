from django.db import migrations, models

from partbox.django.conf import table
from partbox.django.models import Json
from partbox.django.operations import Upgrade


class Migration(migrations.Migration):
    initial = True
    operations = [
        Upgrade(14),
        migrations.CreateModel(
            name="Record",
            fields=[
                ("id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("partition", models.SmallIntegerField()),
                ("event_id", models.UUIDField()),
                ("event_type", models.TextField()),
                ("aggregate_type", models.TextField()),
                ("aggregate_id", models.TextField(null=True)),
                ("tenant_id", models.TextField(null=True)),
                ("payload", Json(null=True)),
                ("content_type", models.TextField(null=True)),
                ("headers", Json(null=True)),
                ("available_at", models.DateTimeField(null=True)),
                ("occurred_at", models.DateTimeField()),
                ("created_at", models.DateTimeField()),
            ],
            options={
                "managed": False,
                "db_table": table("record"),
                "default_permissions": ("view",),
                "permissions": (("view_payload", "Can view the payloads of records"),),
            },
        ),
        migrations.CreateModel(
            name="Dead",
            fields=[
                ("record_id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("subscription", models.TextField()),
                ("event_id", models.UUIDField(null=True)),
                ("event_type", models.TextField()),
                ("aggregate_type", models.TextField()),
                ("aggregate_id", models.TextField(null=True)),
                ("tenant_id", models.TextField(null=True)),
                ("attempts", models.IntegerField()),
                ("died_at", models.DateTimeField()),
                ("published_at", models.DateTimeField(null=True)),
                ("error", models.TextField(null=True)),
                ("traceback", models.TextField(null=True)),
                ("blocks", models.BooleanField(help_text="Later events of its aggregate wait for it.")),
            ],
            options={
                "verbose_name": "dead record",
                "managed": False,
                "db_table": table("dead"),
                "default_permissions": ("view",),
                "permissions": (
                    ("replay_dead", "Can replay dead records"),
                    ("discard_dead", "Can discard dead records"),
                ),
            },
        ),
    ]
