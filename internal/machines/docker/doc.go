// SPDX-License-Identifier: Apache-2.0

// Package docker is the backend of the kinds DockerCluster and DockerMachine: a
// Docker Engine, used only through its API, so that it may be on another host.
//
// A cluster has a network of its own and, unless that is switched off, a
// container that balances connections to its control plane. A machine is a
// container with a volume at /var. Addresses are fixed: the engine chooses a
// subnet once, and each container is given its address in it, which it keeps
// when the engine or its host starts again. Everything carries labels that say
// whose it is, and is found by them.
//
// A machine's first process is package nodeagent: it does the bootstrap, and
// the manager reads its journal. A machine is complete when that is done.
package docker
