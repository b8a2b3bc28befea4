// SPDX-License-Identifier: Apache-2.0

// Command podtool is what pods of tests run where busybox is not enough.
//
//	podtool serve ADDRESS [FOLDER]  answer HTTP requests with this host's name; with
//	                                FOLDER to clients with a certificate only
//	podtool get URL [FOLDER]        print status and body; https with the certificate in
//	                                FOLDER, else with the pod's service account
//	podtool lookup NAME             print the addresses that the pod's name server gives
//	podtool disk FOLDER FOLDER      print how fast files are in the first, in percent of the second
//
// A folder holds ca.crt, tls.crt and tls.key.
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
	if len(args) < 2 || len(args) > 3 {
		return errors.New("usage: podtool serve ADDRESS [FOLDER] | get URL [FOLDER] | lookup NAME | disk FOLDER FOLDER")
	}
	folder := strings.Join(args[2:], "")
	switch args[0] {
	case "serve":
		return serve(args[1], folder)
	case "get":
		return get(args[1], folder)
	case "disk":
		return compare(args[1], folder)
	case "lookup":
		addresses, err := net.LookupHost(args[1])
		fmt.Println(strings.Join(addresses, "\n"))
		return err
	}
	return fmt.Errorf("no command %q", args[0])
}

func serve(address, folder string) error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	server := &http.Server{Addr: address, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "hello from", name)
	})}
	if folder == "" {
		return server.ListenAndServe()
	}
	if server.TLSConfig, err = mutual(folder); err != nil {
		return err
	}
	return server.ListenAndServeTLS("", "")
}

// mutual is for both sides of a connection on which each shows a certificate of
// the same authority.
func mutual(folder string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key"))
	if err != nil {
		return nil, err
	}
	roots, err := authorities(filepath.Join(folder, "ca.crt"))
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert}, err
}

func authorities(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	roots := x509.NewCertPool()
	if err == nil && !roots.AppendCertsFromPEM(pem) {
		err = fmt.Errorf("%s holds no certificate", path)
	}
	return roots, err
}

func get(url, folder string) error {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	client := &http.Client{Timeout: 10 * time.Second}
	switch {
	case folder != "":
		config, err := mutual(folder)
		if err != nil {
			return err
		}
		client.Transport = &http.Transport{TLSClientConfig: config}
	case request.URL.Scheme == "https":
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
	roots, err := authorities(filepath.Join(account, "ca.crt"))
	if err != nil {
		return err
	}
	token, err := os.ReadFile(filepath.Join(account, "token"))
	if err != nil {
		return err
	}
	client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	request.Header.Set("Authorization", "Bearer "+string(token))
	return nil
}
