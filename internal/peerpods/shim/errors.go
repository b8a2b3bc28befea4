// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// containerd acts on the codes of these errors.

func notFound(format string, args ...any) error {
	return status.Errorf(codes.NotFound, format, args...)
}

func failedPrecondition(format string, args ...any) error {
	return status.Errorf(codes.FailedPrecondition, format, args...)
}

func alreadyExists(format string, args ...any) error {
	return status.Errorf(codes.AlreadyExists, format, args...)
}

func invalid(err error) error { return status.Error(codes.InvalidArgument, err.Error()) }

func unimplemented(what string) error {
	return status.Error(codes.Unimplemented, what+": a pod in a VM has no checkpoints")
}

// wire keeps the code that an error has deeper down, e.g. ResourceExhausted of
// the hypervisor service, with the whole text.
func wire(err error) error {
	var coded interface{ GRPCStatus() *status.Status }
	if errors.As(err, &coded) {
		return status.Error(coded.GRPCStatus().Code(), err.Error())
	}
	return err
}
