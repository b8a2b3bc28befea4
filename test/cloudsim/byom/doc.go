// SPDX-License-Identifier: Apache-2.0

// Package byom is a pool of machines for tests: SSH servers with SFTP whose
// guests take user-data and reboot, and an API server that keeps ConfigMaps
// with their resourceVersion, over HTTPS. The machines of [Start] are reached by
// [Pool.Dial], those of [Listen] by programs of any kind.
//
// Actions in the script: configmaps:get, configmaps:create, configmaps:update;
// ssh:connect; sftp:Put, sftp:Get, sftp:Rename, sftp:Remove, sftp:Stat.
package byom
