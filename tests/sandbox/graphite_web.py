"""graphite-web for one sandbox, on 127.0.0.1: python3 graphite_web.py PORT.

Its settings come from the environment (DJANGO_SETTINGS_MODULE, GRAPHITE_SETTINGS_MODULE, PYTHONPATH).
"""

import sys
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIServer, make_server

import django
from django.core.management import call_command
from django.db.backends.signals import connection_created
from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.dispatch import receiver
from django.views.static import serve

django.setup()


# The database is thrown away; a sync for each series with tags would take minutes on a busy disk.
@receiver(connection_created)
def without_syncs(connection, **_):
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA synchronous = OFF")
        cursor.execute("PRAGMA journal_mode = MEMORY")


# The renderer of pictures wants a profile for everybody who is not logged in.
call_command("migrate", run_syncdb=True, verbosity=0)

from graphite.wsgi import application  # noqa: E402 (the database comes first)


# The scripts of its pages, which elsewhere the web server in front has.
class Pages(StaticFilesHandler):
    def serve(self, request):
        return serve(request, self.file_path(request.path), document_root="/usr/share/graphite-web/static")


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


make_server("127.0.0.1", int(sys.argv[1]), Pages(application), server_class=Server).serve_forever()
