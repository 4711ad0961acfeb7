from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    operations = (
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("total", models.IntegerField()),
                ("confirmed", models.BooleanField(default=False)),
            ],
        ),
    )
