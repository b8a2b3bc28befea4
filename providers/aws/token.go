// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/outrigger/outrigger/provider"
)

// maxGenerations is how often one key can be used again within a day.
const maxGenerations = 1000

// token returns the client token of the nth instance of a key. Clusters may
// share an account, and keys with each other. All 64 characters that EC2 takes
// are used; the form never changes, so that nobody an instance be made twice.
func token(owner map[string]string, key string, generation int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %d", owner[provider.TagCluster], key, generation))
	return hex.EncodeToString(sum[:])
}

// after returns the generation after those of the instances.
func (pl *plan) after(instances []types.Instance) int {
	tokens := map[string]bool{}
	for _, i := range instances {
		if i.ClientToken != nil {
			tokens[*i.ClientToken] = true
		}
	}
	next := 0
	for generation := 0; len(tokens) > 0 && generation < maxGenerations; generation++ {
		if t := token(pl.owned, pl.key, generation); tokens[t] {
			delete(tokens, t)
			next = generation + 1
		}
	}
	return next
}
