// SPDX-License-Identifier: Apache-2.0

// Command fakecloud is the simulated cloud of provider/fake as a process
// plugin. In its folder it outlives the managers that use it.
package main

import (
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/provider/serve"
)

// settings are a manager's settings of the cloud.
type settings struct {
	Dir     string        `flag:"fake-dir" env:"FAKE_DIR" required:"true" usage:"folder of the cloud"`
	Latency time.Duration `flag:"fake-latency" env:"FAKE_LATENCY" usage:"how long every call takes at least"`
}

// images are what instances are made of. All but the first say what version of
// Kubernetes is in them.
var images = []string{"podvm", "node-v1.36.3", "node-v1.36.2"}

func open(s settings) (provider.Provider, error) {
	cloud, err := fake.New(fake.Options{Dir: s.Dir, Latency: s.Latency, Images: images})
	if err != nil {
		return nil, err // not the nil *Cloud, which is not a nil Provider
	}
	return cloud, nil
}

func main() { serve.Main("fake", config.New("fake", open)) }
