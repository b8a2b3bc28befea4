// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/internal/guest/userdata"
	"github.com/outrigger/outrigger/provider/cloudinit"
)

// variables is guest information without a hypervisor.
type variables map[string]string

func (v variables) Get(key string) (string, error) { return v[key], nil }
func (v variables) Set(key, value string) error {
	if value == "" {
		return errors.New("an empty value cannot be set")
	}
	v[key] = value
	return nil
}

func gzipped(t *testing.T, text string) string {
	t.Helper()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(packed.Bytes())
}

func TestGuestInfoEncodings(t *testing.T) {
	const doc = "#cloud-config\nwrite_files: []\n"
	plain := base64.StdEncoding.EncodeToString([]byte(doc))
	for encoding, text := range map[string]string{
		"": doc, "base64": plain, "b64": plain[:10] + "\n" + plain[10:], "gzip+base64": gzipped(t, doc), "gz+b64": gzipped(t, doc),
	} {
		got, err := vmwareSource{variables{keyUserData: text, keyEncoding: encoding}}.Fetch(t.Context())
		if err != nil || string(got) != doc {
			t.Errorf("encoding %q: %q, %v", encoding, got, err)
		}
	}
	for name, v := range map[string]variables{
		"nothing":      {},
		"cleared":      {keyUserData: cleared},
		"rot13":        {keyUserData: doc, keyEncoding: "rot13"},
		"not base64":   {keyUserData: "%", keyEncoding: "base64"},
		"no gzip":      {keyUserData: plain, keyEncoding: "gz+b64"},
		"gzip bomb":    {keyUserData: gzipped(t, strings.Repeat("a", cloudinit.MaxSize+1)), keyEncoding: "gz+b64"},
		"empty inside": {keyUserData: gzipped(t, ""), keyEncoding: "gz+b64"},
	} {
		if got, err := (vmwareSource{v}).Fetch(t.Context()); err == nil || strings.Contains(err.Error(), plain) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestGuestInfoIsCleared: other processes of the VM could read the key of the
// pod's certificate there.
func TestGuestInfoIsCleared(t *testing.T) {
	v := variables{keyUserData: "#cloud-config\nwrite_files: []\n"}
	o := userdata.Options{Sources: []Source{vmwareSource{v}}, Dir: t.TempDir(), Timeout: time.Nanosecond, Logger: slog.New(slog.DiscardHandler)}
	if err := userdata.Provision(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if v[keyUserData] != cleared || v[keyEncoding] != cleared {
		t.Errorf("guest information after provisioning: %v", v)
	}
}

func TestBackdoorOffVMware(t *testing.T) {
	if ReadHardware(DMIDir).Platform() == VSphere {
		t.Skip("this machine is a VM of VMware's; the test is about others. Run it elsewhere")
	}
	if _, err := (backdoor{}).Get(keyUserData); err == nil {
		t.Error("guest information was read without VMware's hypervisor")
	}
}
