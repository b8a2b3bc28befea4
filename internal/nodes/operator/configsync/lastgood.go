// SPDX-License-Identifier: Apache-2.0

package configsync

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/nodes/operator/cloudconfig"
)

// goodName is the ConfigMap, beside the configuration, that has a copy of the last good
// one.
const goodName = "cloud-conf-last-good"

// Annotations of it: the platform that it is for, and the sum of what it has. A copy
// that somebody has changed is none.
const (
	platformAnnotation = "ccm.outrigger.dev/platform"
	sumAnnotation      = "ccm.outrigger.dev/sum"
)

type lastGood struct {
	client client.Client
	name   types.NamespacedName
}

func (g lastGood) write(ctx context.Context, p cloudconfig.Platform, c content) error {
	sum, err := c.sum()
	if err != nil {
		return err
	}
	t := target{client: g.client, name: g.name, annotations: map[string]string{platformAnnotation: string(p), sumAnnotation: sum}}
	if err := t.write(ctx, c); err != nil {
		return fmt.Errorf("failed to keep a copy of the cloud config: %w", err)
	}
	return nil
}

// read returns nil if there is none for the platform.
func (g lastGood) read(ctx context.Context, p cloudconfig.Platform) (*content, error) {
	m, err := readConfigMap(ctx, g.client, g.name)
	if m == nil || err != nil {
		return nil, err
	}
	c := contentOf(m)
	sum, err := c.sum()
	if err != nil || m.Annotations[platformAnnotation] != string(p) || m.Annotations[sumAnnotation] != sum {
		return nil, err
	}
	return &c, nil
}

func (c content) sum() (string, error) {
	binary := maps.Clone(c.binary)
	if binary == nil {
		binary = map[string][]byte{}
	}
	text, err := json.Marshal(struct {
		Data   map[string]string
		Binary map[string][]byte
	}{c.data, binary})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}
