from partbox.django.running import Forwarded


class Command(Forwarded):
    help = "Send every event to a broker, in order per aggregate, until stopped."
    name = "relay"
