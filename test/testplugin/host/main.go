// SPDX-License-Identifier: Apache-2.0

// Command host loads the provider that its argument names, as a daemon does,
// and makes an instance.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/provider/plugin"
)

func main() {
	provider.AddCloudProvider("replaced", fake.NewManager())
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "host:", err)
		os.Exit(1)
	}
}

func run(name string) error {
	loaded, err := plugin.Load(context.Background(), plugin.Options{Name: name})
	if err != nil {
		return err
	}
	defer loaded.Close()
	loaded.Cloud.ParseCmd(flag.NewFlagSet("host", flag.ContinueOnError))
	loaded.Cloud.LoadEnv()
	p, err := loaded.Cloud.NewProvider()
	if err != nil {
		return err
	}
	instance, err := p.CreateInstance(context.Background(), "web", "0123456789", cloudinit.Raw("x"), provider.InstanceTypeSpec{})
	if err != nil {
		return err
	}
	fmt.Println(loaded.Carrier, instance.Name)
	return nil
}
