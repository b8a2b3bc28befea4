// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/outrigger/outrigger/provider/cloudinit"
)

// The keys of guest information that hold user-data; see the data source
// VMware of cloud-init.
const (
	keyUserData = "guestinfo.userdata"
	keyEncoding = "guestinfo.userdata.encoding"
	// cleared is what takes the place of user-data that has been read, since
	// every process of the VM can read it, and an empty value cannot be set.
	cleared = "---"
)

// guestInfo reads and sets the hypervisor's variables; an absent one is empty.
type guestInfo interface {
	Get(key string) (string, error)
	Set(key, value string) error
}

type vmwareSource struct{ info guestInfo }

// Name implements [Source].
func (vmwareSource) Name() string { return "VMware guest information" }

// Fetch implements [Source].
func (s vmwareSource) Fetch(context.Context) ([]byte, error) {
	text, err := s.info.Get(keyUserData)
	if err != nil {
		return nil, err
	}
	if text == "" || text == cleared {
		return nil, fmt.Errorf("%s is not set", keyUserData)
	}
	encoding, err := s.info.Get(keyEncoding)
	if err != nil {
		return nil, err
	}
	return DecodeGuestInfo(text, encoding)
}

// Clear takes user-data out of the guest information.
func (s vmwareSource) Clear() error {
	return errors.Join(s.info.Set(keyUserData, cleared), s.info.Set(keyEncoding, cleared))
}

// DecodeGuestInfo returns the document in a value of guestinfo.userdata whose
// encoding is that of guestinfo.userdata.encoding.
func DecodeGuestInfo(text, encoding string) ([]byte, error) {
	switch encoding {
	case "", cleared:
		return nothing(text, keyUserData)
	case "base64", "b64":
		return decode(text, keyUserData)
	case "gzip+base64", "gz+b64":
		packed, err := decode(text, keyUserData)
		if err != nil {
			return nil, err
		}
		return gunzip(packed)
	}
	return nil, fmt.Errorf("%s %q is none of base64, b64, gzip+base64, gz+b64", keyEncoding, encoding)
}

func gunzip(packed []byte) ([]byte, error) {
	reader, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", keyUserData, err)
	}
	data, err := io.ReadAll(io.LimitReader(reader, cloudinit.MaxSize+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", keyUserData, err)
	case len(data) > cloudinit.MaxSize:
		return nil, fmt.Errorf("%s unpacks to more than %d bytes", keyUserData, cloudinit.MaxSize)
	}
	return nothing(string(data), keyUserData)
}
