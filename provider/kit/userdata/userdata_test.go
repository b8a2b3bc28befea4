// SPDX-License-Identifier: Apache-2.0

package userdata_test

import (
	"errors"
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/kit/userdata"
)

type failing struct{ err error }

func (f failing) Generate() (string, error) { return "half", f.err }

func TestGenerate(t *testing.T) {
	if text, err := userdata.Generate(cloudinit.Raw("#cloud-config\n")); text != "#cloud-config\n" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	if text, err := userdata.Generate(nil); text != "" || err != nil {
		t.Errorf("without a generator: %q, %v", text, err)
	}
	cause := errors.New("no entropy")
	text, err := userdata.Generate(failing{cause})
	if text != "" || !errors.Is(err, cause) || !errors.Is(err, provider.ErrInvalidArgument) {
		t.Errorf("a failed generation: %q, %v", text, err)
	}
}
