// SPDX-License-Identifier: Apache-2.0

package redact

import "github.com/outrigger/outrigger/provider/cloudinit"

// UserData returns err without what is in the user-data: clouds quote what they refuse, and
// it holds the VM's private key.
func UserData(err error, data cloudinit.CloudConfig) error {
	text, _ := data.Generate()
	secrets := append(Find(text), text)
	for _, file := range data.WriteFiles {
		secrets = append(secrets, file.Content)
		secrets = append(secrets, Find(file.Content)...)
	}
	return Error(err, Known(secrets...))
}
