// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"fmt"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
)

// testCloud is a provider that is built into the test.
const testCloud = "paper"

type paperConfig struct {
	Zone  string        `env:"PAPER_ZONE" required:"true" usage:"zone"`
	Size  int64         `env:"PAPER_SIZE" default:"1" min:"1" max:"9" usage:"size"`
	Token config.Secret `env:"PAPER_TOKEN" required:"true" usage:"token"`
}

// paper is a cloud with two instances of the cluster, one of them of nobody,
// and one of another cluster.
type paper struct {
	provider.Provider
	provider.DiskController // only its list is used
	config                  paperConfig
}

func init() {
	provider.AddCloudProvider(testCloud, config.New(testCloud, func(c paperConfig) (provider.Provider, error) { return &paper{config: c}, nil }))
}

func (*paper) Teardown() error { return nil }

func (*paper) ListInstances(_ context.Context, match map[string]string) ([]provider.Instance, error) {
	instance := func(id, cluster string, age time.Duration) provider.Instance {
		return provider.Instance{ID: id, Key: "s-" + id, Created: now.Add(-age),
			Tags: map[string]string{provider.TagCluster: cluster, provider.TagNamespace: "shop", provider.TagPod: "lost", provider.TagNode: "node1"}}
	}
	own := match[provider.TagCluster]
	return []provider.Instance{instance("i-web", own, time.Hour), instance("i-nobody", own, time.Hour), instance("i-young", own, time.Minute), instance("i-foreign", "other", time.Hour)}, nil
}

func (*paper) ListDisks(_ context.Context, match map[string]string) ([]provider.Disk, error) {
	disk := func(id, volume, cluster string, age time.Duration) provider.Disk {
		return provider.Disk{ID: id, Key: volume, Bytes: 10 << 30, Created: now.Add(-age), Tags: map[string]string{provider.TagCluster: cluster}}
	}
	own := match[provider.TagCluster]
	return []provider.Disk{disk("d-used", "pvc-1", own, time.Hour), disk("d-lost", "pvc-2", own, time.Hour), disk("d-young", "pvc-3", own, time.Minute), disk("d-foreign", "pvc-4", "other", time.Hour)}, nil
}

func (p *paper) Console(_ context.Context, id string, tail int64) ([]byte, error) {
	if id != "i-web" {
		return nil, fmt.Errorf("instance %s: %w", id, provider.ErrNotFound)
	}
	text := "boot of " + id + " in " + p.config.Zone + "\n"
	return []byte(text[max(0, len(text)-int(tail)):]), nil
}

// configured puts valid settings.
func (f *fakeAPI) configured() {
	f.put(core(SystemNamespace, "configmaps", configMapName), o{"data": o{"CLOUD_PROVIDER": testCloud, "PAPER_ZONE": "north"}})
	f.put(core(SystemNamespace, "secrets", secretName), o{"data": o{"PAPER_TOKEN": []byte(tokenValue)}})
}

const tokenValue = "hush-hush <&> \"token\""
