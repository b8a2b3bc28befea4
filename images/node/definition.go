// SPDX-License-Identifier: Apache-2.0

// Package node defines the node image: the packages and the fixed files in it.
// The programs of Kubernetes are the modules in kube and coredns. The builder is
// internal/machines/nodeimage.
package node

import "embed"

// Packages is packages.list: one package a line, # starts a comment.
//
//go:embed packages.list
var Packages string

// ProxyPackages are those of the image of kube-proxy, which changes packet
// filters by programs.
const ProxyPackages = "iptables"

// Files has the image's own files in the folder files, by their paths in it.
// PauseImage in a file stands for the image that holds a pod's namespaces.
//
//go:embed files
var Files embed.FS

// PauseImage is what it stands for in Files.
const PauseImage = "@PAUSE_IMAGE@"
