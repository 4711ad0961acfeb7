from partbox.django.running import ForwardedCommand


class Command(ForwardedCommand):
    help = "Send every event to a broker, in order per aggregate, until stopped."
    name = "relay"
