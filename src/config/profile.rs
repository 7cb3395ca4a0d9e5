//! What is known of stores by name: one fact per row, seen on the named version of the store.
//!
//! A profile speaks of the store alone. What depends on the deployment is never in it and has to be
//! declared: whether something else writes there (U1), whether a hop between repeats requests or answers
//! early (U2), and whether a read sees every finished write (U4: several filers, gateways or a cache in
//! front change that, and nobody probed it). So a profile gives U3 and no more.

use crate::pipeline::settings::TornUploads;

/// The known facts of one store.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// Its name in the file.
    pub name: &'static str,
    /// The version it was seen on.
    pub seen_on: &'static str,
    /// What a body leaves behind that ends early (with Content-Length, aws-chunked, and HTTP chunked).
    pub torn_uploads: TornUploads,
}

/// All of them, by name.
pub const PROFILES: [Profile; 5] = [
    Profile { name: "moto", seen_on: "5.2.5", torn_uploads: TornUploads::Discarded },
    Profile { name: "nanio", seen_on: "0.1.7", torn_uploads: TornUploads::Discarded },
    Profile { name: "rclone", seen_on: "1.75.2", torn_uploads: TornUploads::Discarded },
    Profile { name: "s3rver", seen_on: "3.7.1", torn_uploads: TornUploads::Kept },
    Profile { name: "seaweedfs", seen_on: "4.48", torn_uploads: TornUploads::Discarded },
];

/// The profile of this name.
pub fn profile(name: &str) -> Option<&'static Profile> {
    PROFILES.iter().find(|profile| profile.name == name)
}
