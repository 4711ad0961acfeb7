from django.db import connection
from django.http import JsonResponse
from django.views.decorators.http import require_http_methods

from shop.events import outbox
from shop.models import Order


@require_http_methods(["GET", "POST"])
def orders(request):
    if request.method == "GET":
        return JsonResponse({"orders": list(Order.objects.order_by("id").values())})
    order = Order.objects.create(total=request.POST["total"])
    outbox.publish(
        connection, "OrderPlaced", {"total": int(order.total)}, aggregate_type="Order", aggregate_id=order.id
    )
    if int(order.total) < 0:
        raise ValueError(f"a total of {order.total}")  # takes the order and its event back
    return JsonResponse({"id": order.id}, status=201)
