// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"errors"
	"time"

	"github.com/outrigger/outrigger/internal/controllers"
	"github.com/outrigger/outrigger/provider"
)

// class is what a class of error means for an object: what its condition says
// and when the call is repeated. A pause of 0 is the queue's back-off.
type class struct {
	reason, hint string
	pause        time.Duration
}

// Errors that only a person can fix are retried, too, slowly: the fix may be
// outside of the object.
var classes = map[error]class{
	provider.ErrInvalidArgument:  {"InvalidArgument", "correct what the message names", 5 * time.Minute},
	provider.ErrNotFound:         {"NotFound", "make what the message names, such as an image or network", time.Minute},
	provider.ErrAlreadyExists:    {"AlreadyExists", "what carries the key has another specification: delete the machine", 5 * time.Minute},
	provider.ErrCapacity:         {"NoCapacity", "choose another type or failure domain, or wait", 30 * time.Second},
	provider.ErrQuota:            {"QuotaExceeded", "raise the account's quota, or remove machines", time.Minute},
	provider.ErrUnauthenticated:  {"Unauthenticated", "renew the provider's credentials", time.Minute},
	provider.ErrPermissionDenied: {"PermissionDenied", "give the provider's credentials the missing permission", time.Minute},
	provider.ErrUnavailable:      {"Unavailable", "it is tried again", 0},
	provider.ErrUnimplemented:    {"Unimplemented", "the provider cannot do this: do without it", 5 * time.Minute},
	provider.ErrUnknown:          {"ProviderError", "it is tried again", 0},
}

// Reasoner is implemented by errors that have a reason of their own for the
// conditions, in UpperCamelCase.
type Reasoner interface{ Reason() string }

func reasonOf(err error) string {
	var own Reasoner
	if errors.As(err, &own) && own.Reason() != "" {
		return own.Reason()
	}
	return classes[provider.Class(err)].reason
}

func messageOf(err error) string {
	return clip(err.Error() + ": " + classes[provider.Class(err)].hint)
}

func pauseOf(err error) time.Duration { return classes[provider.Class(err)].pause }

const maxMessage = 1000

func clip(message string) string { return controllers.Clip(message, maxMessage) }
