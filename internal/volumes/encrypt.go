// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/outrigger/outrigger/internal/attest"
	"github.com/outrigger/outrigger/internal/blockdevice"
)

// parameterEncrypted is of the StorageClass, and attributeEncrypted of the volume: those of wrapped drivers have names of their own.
const parameterEncrypted, attributeEncrypted = "encrypted", Name + "/encrypted"

// secretKey is the key of the Secret that has the disk's; maxKey is what that may have, in bytes.
const secretKey, maxKey = "key", 4096

// isEncrypted reads the value of either.
func isEncrypted(text string) (bool, error) {
	yes, err := strconv.ParseBool(text)
	if text != "" && err != nil {
		return false, invalid("%s %q: want true or false", parameterEncrypted, text)
	}
	return yes, nil
}

// diskKey returns what the Secret has for a volume, empty for one that is not encrypted. It is sealed, and not the key itself, if it
// begins with [attest.SealedPrefix]. call is the part of the name by which Kubernetes knows the Secret.
func diskKey(volumeID string, volume, secrets map[string]string, call string) (key string, isSealed bool, err error) {
	yes, err := isEncrypted(volume[attributeEncrypted])
	if err != nil || !yes {
		return "", false, err
	}
	switch key = secrets[secretKey]; {
	case key == "":
		return "", false, invalid("volume %s is encrypted, and there is no Secret with the key %q: set csi.storage.k8s.io/%s-secret-name and -namespace in its StorageClass, or %sSecretRef in its PersistentVolume",
			volumeID, secretKey, call, refs[call])
	case len(key) > maxKey:
		return "", false, invalid("volume %s: the Secret's %q has %d bytes, at most %d can be", volumeID, secretKey, len(key), maxKey)
	}
	return key, strings.HasPrefix(strings.TrimSpace(key), attest.SealedPrefix), nil
}

// encryptionHere is that of a disk which this node opens, nil for one that is not encrypted.
func encryptionHere(volumeID string, volume, secrets map[string]string) (*blockdevice.Encryption, error) {
	key, isSealed, err := diskKey(volumeID, volume, secrets, "node-stage")
	switch {
	case err != nil || key == "":
		return nil, err
	case isSealed:
		return nil, invalid("volume %s: the Secret's %q is sealed: a pod's VM opens it, and this pod has none. Give the pod a VM (runtimeClassName)", volumeID, secretKey)
	}
	return blockdevice.NewEncryption(volumeID, []byte(key)), nil
}

// keyForGuest is that of a disk which a VM opens, as [directvolume.MetadataKey] has it; empty for one that is not encrypted.
func keyForGuest(volumeID string, volume, secrets map[string]string) (string, error) {
	key, isSealed, err := diskKey(volumeID, volume, secrets, "node-publish")
	if isSealed {
		return strings.TrimSpace(key), err
	}
	return base64.StdEncoding.EncodeToString([]byte(key)), err
}

// refs are the calls as a PersistentVolume names them.
var refs = map[string]string{"node-stage": "nodeStage", "node-publish": "nodePublish"}
