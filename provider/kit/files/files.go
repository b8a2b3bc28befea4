// SPDX-License-Identifier: Apache-2.0

// Package files keeps values in files that several processes share, as a cloud in a
// folder does.
package files

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/outrigger/outrigger/provider"
)

// Create makes a file of a value, as JSON, which only this user can read. Others see
// all of it or nothing. If there is a file already it stays, and the error is
// [fs.ErrExist].
func Create(ctx context.Context, path string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	temp := path + rand.Text()
	defer os.Remove(temp)
	if err := os.WriteFile(temp, data, 0o600); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return os.Link(temp, path)
}

// Read reads such a file.
func Read[V any](ctx context.Context, path string) (value V, err error) {
	if err := ctx.Err(); err != nil {
		return value, err
	}
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &value)
	}
	return value, err
}

// Classify gives an error of files its class and says what was tried.
func Classify(what string, err error) error {
	class := provider.ErrUnavailable // the same again is safe
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		class = provider.ErrNotFound
	case errors.Is(err, fs.ErrPermission):
		class = provider.ErrPermissionDenied
	}
	return fmt.Errorf("%s: %w: %w", what, class, err)
}
