"""The outbox of a Django project as commands and worker processes import it: `partbox.django.target:outbox`. A worker
process starts as a new program, and finds Django's settings by DJANGO_SETTINGS_MODULE."""

import django
from django.apps import apps

if not apps.ready:
    django.setup()

from partbox.django.loading import load_outbox

outbox = load_outbox()
