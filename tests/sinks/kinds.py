"""Every kind of broker that there is on this machine."""

import os

from brokers import Broker, Hook, Nats, Rabbit, Redis, Sqs
from kafkas import BOOTSTRAP, MockKafka, RealKafka

BROKERS: dict[str, type[Broker]] = {
    "kafka": RealKafka if BOOTSTRAP in os.environ else MockKafka,
    "rabbitmq": Rabbit,
    "nats": Nats,
    "redis": Redis,
    "webhook": Hook,
    "sqs": Sqs,
}
