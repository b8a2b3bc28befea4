// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"errors"
	"slices"
)

// Error classes. What a caller does with each:
//
//	class                what it means                          retry
//	ErrInvalidArgument   the request can never succeed          no
//	ErrNotFound          no such instance, image, network       no
//	ErrAlreadyExists     the key is taken with another spec     no
//	ErrInUse             another instance has the disk          yes: when it has let it go
//	ErrCapacity          the cloud has none left in this zone   yes: other zone or type
//	ErrQuota             the account may have no more           yes: later, slowly
//	ErrUnauthenticated   credentials missing, wrong, expired    no: tell the operator
//	ErrPermissionDenied  credentials lack a permission          no: tell the operator
//	ErrUnavailable       throttled, time-out, 5xx, lost reply   yes: with back-off, same key
//	ErrUnimplemented     the provider lacks this power          no
//	ErrUnknown           none of the above                      yes: with back-off, same key
var (
	ErrInvalidArgument  = errors.New("invalid argument")
	ErrNotFound         = errors.New("not found")
	ErrAlreadyExists    = errors.New("already exists")
	ErrInUse            = errors.New("in use")
	ErrCapacity         = errors.New("no capacity")
	ErrQuota            = errors.New("quota exceeded")
	ErrUnauthenticated  = errors.New("unauthenticated")
	ErrPermissionDenied = errors.New("permission denied")
	ErrUnavailable      = errors.New("unavailable")
	ErrUnimplemented    = errors.New("unimplemented")
	ErrUnknown          = errors.New("unknown error")
)

var classes = []error{
	ErrInvalidArgument, ErrNotFound, ErrAlreadyExists, ErrInUse, ErrCapacity, ErrQuota,
	ErrUnauthenticated, ErrPermissionDenied, ErrUnavailable, ErrUnimplemented,
}

// Classes returns all classes, ErrUnknown last. What tells them apart, such as
// the Events of pods, is checked against it.
func Classes() []error { return append(slices.Clip(classes), ErrUnknown) }

// Class returns the class of err: one of the Err variables, nil for nil.
func Class(err error) error {
	if err == nil {
		return nil
	}
	for _, class := range classes {
		if errors.Is(err, class) {
			return class
		}
	}
	return ErrUnknown
}

// Retryable reports whether the same request may succeed later.
func Retryable(err error) bool {
	switch Class(err) {
	case ErrInUse, ErrCapacity, ErrQuota, ErrUnavailable, ErrUnknown:
		return true
	}
	return false
}
