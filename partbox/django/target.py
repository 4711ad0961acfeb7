"""The outbox of a Django project, as commands and worker processes import it: `partbox.django.target:outbox`.

A worker process starts anew, and has Django's settings from DJANGO_SETTINGS_MODULE.
"""

import django
from django.apps import apps

if not apps.ready:
    django.setup()

from partbox.django.loading import load_outbox

outbox = load_outbox()
