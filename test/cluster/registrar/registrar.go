// SPDX-License-Identifier: Apache-2.0

// Package registrar is node-driver-registrar, by its documentation: kubelet finds a socket in its folder and asks
// what is there.
package registrar

import (
	"context"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Folder is where kubelet looks.
const Folder = "/var/lib/kubelet/plugins_registry"

// Serve registers a driver, whose socket is a path of the node, in kubelet's folder; stop ends it.
func Serve(folder, driver, socket string) (stop func(), err error) {
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return nil, err
	}
	listener, err := net.Listen("unix", filepath.Join(folder, driver+"-reg.sock"))
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, registrar{driver: driver, socket: socket})
	go server.Serve(listener)
	return server.Stop, nil
}

type registrar struct {
	registration.UnimplementedRegistrationServer
	driver, socket string
}

func (r registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: r.driver, Endpoint: r.socket, SupportedVersions: []string{"1.0.0"}}, nil
}

func (registrar) NotifyRegistrationStatus(context.Context, *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	return &registration.RegistrationStatusResponse{}, nil
}
