// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"strconv"

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

// encryption returns nil for a volume that is not encrypted. call is the part of the name by which Kubernetes knows the Secret.
func encryption(volumeID string, volume, secrets map[string]string, call string) (*blockdevice.Encryption, error) {
	yes, err := isEncrypted(volume[attributeEncrypted])
	if err != nil || !yes {
		return nil, err
	}
	switch key := secrets[secretKey]; {
	case key == "":
		return nil, invalid("volume %s is encrypted, and there is no Secret with the key %q: set csi.storage.k8s.io/%s-secret-name and -namespace in its StorageClass, or %sSecretRef in its PersistentVolume",
			volumeID, secretKey, call, refs[call])
	case len(key) > maxKey:
		return nil, invalid("volume %s: the Secret's %q has %d bytes, at most %d can be", volumeID, secretKey, len(key), maxKey)
	default:
		return blockdevice.NewEncryption(volumeID, []byte(key)), nil
	}
}

// refs are the calls as a PersistentVolume names them.
var refs = map[string]string{"node-stage": "nodeStage", "node-publish": "nodePublish"}
