// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

// Finalizer keeps a PeerPod until its instance is gone.
const Finalizer = "peer.pod/finalizer"

// nameHash is how many characters of the sandbox's hash are in a name: 60 bits.
const nameHash = 12

// maxName is the longest label value, so that a name can be one.
const maxName = 63

// Name returns the name of a sandbox's PeerPod: the pod's, cut if need be, and
// a hash of the sandbox id. The same sandbox always has the same name: an
// adaptor that lost the answer to its claim, or was killed before it noted the
// name, claims again and finds its own object instead of making a second one. A
// random part, as earlier versions had, made two. The id itself is hashed since
// its characters and length are not those of object names.
func Name(podName, sandboxID string) string {
	sum := sha256.Sum256([]byte(sandboxID))
	hash := strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:nameHash]
	pod := podName[:min(len(podName), maxName-1-nameHash)]
	if pod = strings.Trim(pod, "-."); pod == "" {
		pod = "sandbox"
	}
	return pod + "-" + hash
}
