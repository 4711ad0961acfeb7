"""Models that gather events: they are published with the row."""

from typing import Any

MODEL = """
import asyncio
from uuid import uuid4

from django.db import IntegrityError, connection, models, transaction
from partbox import Event
from partbox.django.events import ModelEventsMixin
from partbox.errors import PublishError

class Order(ModelEventsMixin, models.Model):
    name = models.CharField(max_length=20, unique=True)

    class Meta:
        app_label = "shop"

    def tell(self, *names):
        self.events.extend(Event(name, None) for name in names)
        return self

def log():
    with connection.cursor() as cursor:
        cursor.execute("select event_type from partbox.record order by id")
        return [name for (name,) in cursor.fetchall()]

with connection.schema_editor() as editor:
    editor.create_model(Order)
"""


def run(migrated: Any, program: str) -> list[str]:
    return migrated.run(MODEL + program).splitlines()  # type: ignore[no-any-return]


def test_a_save_and_a_delete_publish_the_gathered_events_in_order_and_once(migrated):
    assert run(
        migrated,
        """
order = Order(name="one").tell("A", "B")
order.save()
print(log(), order.events)
order.save()
loaded = Order.objects.get().tell("C")
loaded.save(update_fields=["name"])
print(loaded.tell("Gone").delete())
async def place():
    await Order(name="two").tell("D").asave()
asyncio.run(place())
print(log())
""",
    ) == ["['A', 'B'] []", "(1, {'shop.Order': 1})", "['A', 'B', 'C', 'Gone', 'D']"]


def test_a_rolled_back_save_publishes_nothing_and_a_failed_save_keeps_its_events(migrated):
    assert run(
        migrated,
        """
with transaction.atomic():
    Order(name="one").tell("A").save()
    try:
        with transaction.atomic():
            Order(name="two").tell("undone").save()
            raise KeyError
    except KeyError:
        pass
print(log(), Order.objects.count())
again = Order(name="one").tell("B")
try:
    again.save()
except IntegrityError:
    print(len(again.events))
again.name = "three"
again.events.append("no event")
try:
    again.save()
except (PublishError, AttributeError):
    print(len(again.events), Order.objects.count())
del again.events[1]
again.id = None
again.save()
print(log(), Order.objects.count())
""",
    ) == ["['A'] 1", "1", "2 1", "['A', 'B'] 2"]
