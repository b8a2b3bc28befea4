// SPDX-License-Identifier: Apache-2.0

// Command podtool is what pods of tests run where busybox is not enough.
//
//	podtool serve ADDRESS   answer HTTP requests with this host's name
//	podtool get URL         print status and body; https with the pod's service account
//	podtool lookup NAME     print the addresses that the pod's name server gives
package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// account is where kubelet mounts the service account.
const account = "/var/run/secrets/kubernetes.io/serviceaccount"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "podtool:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: podtool serve ADDRESS | get URL | lookup NAME")
	}
	switch args[0] {
	case "serve":
		return serve(args[1])
	case "get":
		return get(args[1])
	case "lookup":
		addresses, err := net.LookupHost(args[1])
		fmt.Println(strings.Join(addresses, "\n"))
		return err
	}
	return fmt.Errorf("no command %q", args[0])
}

func serve(address string) error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	return http.ListenAndServe(address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "hello from", name)
	}))
}

func get(url string) error {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	client := &http.Client{Timeout: 10 * time.Second}
	if request.URL.Scheme == "https" {
		if err := identify(client, request); err != nil {
			return err
		}
	}
	r, err := client.Do(request)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	fmt.Println(r.Status)
	_, err = io.Copy(os.Stdout, r.Body)
	return err
}

func identify(client *http.Client, request *http.Request) error {
	authority, err := os.ReadFile(filepath.Join(account, "ca.crt"))
	if err != nil {
		return err
	}
	token, err := os.ReadFile(filepath.Join(account, "token"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	request.Header.Set("Authorization", "Bearer "+string(token))
	return nil
}
