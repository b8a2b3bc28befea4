// SPDX-License-Identifier: Apache-2.0

// Package docker is what is behind the kinds DockerCluster and DockerMachine: a
// Docker Engine, spoken to over its API alone, so that it may be elsewhere.
//
// A cluster has a network of its own and, unless that is switched off, a
// container that balances connections to its control plane. A machine is a
// container with a volume at /var. Addresses are fixed: the engine chooses a
// subnet once, and each container is given its address in it, which it keeps
// when the engine or its host starts anew. Everything carries labels that say
// whose it is, and is found by them.
//
// A machine's first process is package nodeagent: it does the bootstrap, and
// the manager looks at its journal. A machine is complete when that is done.
package docker
