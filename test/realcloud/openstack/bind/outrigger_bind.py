# SPDX-License-Identifier: Apache-2.0
"""A mechanism driver of Neutron that binds every port: there are no agents."""

from neutron.db.models import port_forwarding  # noqa: F401
from neutron_lib.plugins.ml2 import api
from sqlalchemy import orm


class Bind(api.MechanismDriver):
    def initialize(self):
        # Neutron 21 fails calls of a process whose first call is for a port:
        # the model of port forwarding is not connected to that of ports yet.
        orm.configure_mappers()

    def bind_port(self, context):
        segment = context.segments_to_bind[0]
        context.set_binding(segment[api.ID], "bridge", {"port_filter": True}, status="ACTIVE")
