// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"testing"

	"github.com/outrigger/outrigger/provider"
)

func TestImportable(t *testing.T) {
	good := provider.ImageSource{Name: "podvm-2.qcow2", Location: "/images/podvm.qcow2", Format: provider.FormatQcow2}
	if err := importable(good); err != nil {
		t.Error(err)
	}
	for what, change := range map[string]func(*provider.ImageSource){
		"format":   func(s *provider.ImageSource) { s.Format = provider.FormatOVA },
		"location": func(s *provider.ImageSource) { s.Location = "https://images.test/podvm.qcow2" },
		"name":     func(s *provider.ImageSource) { s.Name = "" },
		"slash":    func(s *provider.ImageSource) { s.Name = "../podvm" },
		"instance": func(s *provider.ImageSource) { s.Name = volumePrefix + "x" },
	} {
		source := good
		change(&source)
		if err := importable(source); provider.Class(err) != provider.ErrInvalidArgument {
			t.Errorf("%s: %v", what, err)
		}
	}
}
