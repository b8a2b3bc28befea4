// SPDX-License-Identifier: Apache-2.0

// Command load does with a provider what a controller does: it loads it from
// wherever the environment says, opens it, verifies it and lists instances.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/plugin"
)

func main() {
	if err := run(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, name string) (err error) {
	loaded, err := plugin.Load(ctx, plugin.Options{Name: name})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, loaded.Close()) }()
	loaded.Cloud.ParseCmd(flag.NewFlagSet(name, flag.ContinueOnError))
	loaded.Cloud.LoadEnv()
	p, err := loaded.Cloud.NewProvider()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Teardown()) }()
	fmt.Println("loaded", loaded.Name, "as", loaded.Carrier, "with", provider.Capabilities(p))
	lister, ok := provider.As[provider.Lister](p)
	if !ok {
		return errors.New("it cannot list")
	}
	list, err := lister.ListInstances(ctx, map[string]string{provider.TagCluster: "c"})
	fmt.Println("instances:", len(list))
	return errors.Join(err, p.ConfigVerifier())
}
