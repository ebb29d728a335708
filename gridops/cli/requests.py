"""One signed request from a person to the controller. Used by every command that asks the controller to act."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import Any

from gridops.base import limits
from gridops.base.ids import PersonName
from gridops.cli.client import Client, connect, root_of
from gridops.cli.output import Context
from gridops.cli.person import chain_of, signer_as
from gridops.trust.keys import Signer
from gridops.trust.operator import OperatorRequest, Verb, seal_operator
from gridops.trust.root import RoleName, RootChain


@dataclass(frozen=True, slots=True)
class Desk:
    """A person at the controller's desk: who, with which key, in which fleet."""

    person: PersonName
    signer: Signer
    chain: RootChain
    client: Client

    def ask(self, verb: Verb, **fields: Any) -> Any:
        """Sign a request, send it, return the answer. Raises what the controller answers."""
        now_ms = int(time.time() * 1000)
        request = OperatorRequest(
            fleet=self.chain.fleet,
            verb=verb,
            by=self.person,
            nonce=secrets.token_hex(16),
            issued_ms=now_ms,
            not_after_ms=now_ms + limits.OPERATOR_VALID_MS,
            **{name: value for name, value in fields.items() if value is not None},
        )
        return self.client.operator(seal_operator(request, self.signer))


def desk(
    context: Context, who: str | None, controller: str | None = None, also: tuple[RoleName, ...] = ()
) -> Desk:
    """The caller, an approver or of a role in `also`, ready to sign. Raises Usage when it is unclear who calls, Failed
    when no controller is known."""
    chain = chain_of(root_of(context.directory))
    client = connect(context, controller)
    person, signer = signer_as(chain, who, context, also)
    return Desk(person, signer, chain, client)
