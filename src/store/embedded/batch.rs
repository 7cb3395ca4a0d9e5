//! One commit's worth of commands: judged in order against what they will leave behind.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::Sender;
use std::time::Duration;

use redb::Database;

use super::error::StoreError;
use super::rows::{Permit, Rows};
use super::schema::{self, Meta};
use super::writer::{Acquired, Claim, Command, LeaseChange, Parts, Reply, Told, Want};
use crate::core::gate::PermitId;
use crate::core::lease::{Asked, Phase, Record, Release, next_token};
use crate::core::{Holder, Millis, Resource, Token};
use crate::store::clock::Clock;

/// A change that memory has and that may reach the file with any later commit.
pub(super) enum Lazy {
    /// A permit was given back.
    GivenBack(Resource, PermitId),
    /// The lease with this token ran out.
    Expired(Resource, Token),
}

/// What one resource will be like after the commit.
struct Staged {
    lease: Option<Record>,
    lease_changed: bool,
    /// The lease runs this long from when it is published, and at least until the old deadline.
    runs: Option<(Duration, Millis)>,
    mark: Option<Token>,
    mark_changed: bool,
    permits: Option<Vec<Permit>>,
    taken: Vec<Permit>,
    given_back: Vec<PermitId>,
}

type Answer = Box<dyn FnOnce(Result<(), &StoreError>) + Send>;

pub(super) struct Batch {
    staged: BTreeMap<Resource, Staged>,
    changes: Vec<Told>,
    answers: Vec<Answer>,
    commands: Sender<Command>,
    floor: Option<Token>,
    mapping: Option<u128>,
}

// === impl Batch ===

impl Batch {
    pub fn new(parts: &Parts) -> Batch {
        Batch {
            staged: BTreeMap::new(),
            changes: Vec::new(),
            answers: Vec::new(),
            commands: parts.commands.clone(),
            floor: parts.floor,
            mapping: None,
        }
    }

    /// Judges one command; its answer waits for the commit.
    pub fn stage(&mut self, command: Command, parts: &Parts) {
        match command {
            Command::Acquire { want, reply } => {
                let acquired = self.acquire(want, parts);
                self.later(reply, acquired);
            }
            Command::Extend { name, token, ttl_ms, reply } => {
                let extended = self.extend(&name, token, ttl_ms, parts);
                self.later(reply, extended);
            }
            Command::Release { name, token, reply } => {
                let released = self.release(&name, token, parts);
                self.later(reply, released);
            }
            Command::Bump { name, above, reply } => {
                let token = self.bump(&name, above, parts);
                self.later(reply, token);
            }
            Command::Raise { name, token, reply } => {
                let floor = self.floor;
                let staged = self.row(&name, parts);
                let mark = staged.mark.max(floor).unwrap_or(token).max(token);
                staged.mark_changed |= staged.mark.max(floor) < Some(mark);
                staged.mark = Some(mark);
                self.later(reply, mark);
            }
            Command::Take { name, permit, reply } => {
                let floor = self.floor;
                let staged = self.row(&name, parts);
                let guard = staged.mark.max(floor) == Some(permit.token);
                let permits = staged.permits(&name, &parts.rows);
                if guard && permits.iter().all(|other| other.id != permit.id) {
                    permits.push(permit);
                    staged.taken.push(permit);
                }
                self.later(reply, guard);
            }
            Command::GiveBack { name, id, reply } => {
                let staged = self.row(&name, parts);
                let permits = staged.permits(&name, &parts.rows);
                if permits.iter().any(|permit| permit.id == id) {
                    permits.retain(|permit| permit.id != id);
                    staged.given_back.push(id);
                }
                self.later(reply, ());
            }
            Command::Mapping { mapping, reply } => {
                self.mapping = Some(mapping);
                self.later(reply, ());
            }
            Command::Tick { reply } => self.later(reply, ()),
            Command::Close { .. } => unreachable!("the writer handles it"),
        }
    }

    /// Whether somebody waits for something to be durable.
    pub fn must_commit(&self) -> bool {
        self.mapping.is_some()
            || self
                .staged
                .values()
                .any(|s| s.lease_changed || s.mark_changed || !s.taken.is_empty())
    }

    /// Whether it says under which rules all permits were taken.
    pub fn sets_mapping(&self) -> bool {
        self.mapping.is_some()
    }

    /// Whether it changes anything, also what need not be durable.
    pub fn changes_anything(&self) -> bool {
        self.must_commit() || self.staged.values().any(|s| !s.given_back.is_empty())
    }

    /// The greatest token or mark in it.
    pub fn high(&self) -> u64 {
        let leases = self.staged.values().filter_map(|s| s.lease.as_ref().map(|r| r.token));
        leases.chain(self.staged.values().filter_map(|s| s.mark)).max().map_or(0, Token::get)
    }

    fn later<T: Send + 'static>(&mut self, reply: Reply<T>, value: T) {
        self.answers.push(Box::new(move |done| {
            // Nobody listens any more: fine, and a grant among the values takes itself back.
            let _ = reply.send(done.map(|()| value).map_err(StoreError::clone));
        }));
    }

    fn row(&mut self, name: &Resource, parts: &Parts) -> &mut Staged {
        self.staged.entry(name.clone()).or_insert_with(|| Staged {
            lease: None,
            lease_changed: false,
            runs: None,
            mark: parts.rows.read(name, |row| row.and_then(|row| row.mark)),
            mark_changed: false,
            permits: None,
            taken: Vec::new(),
            given_back: Vec::new(),
        })
    }

    /// The lease as it will be, and the time. Renewals move the deadline in memory at any moment, so
    /// time and deadline are read together, under the lock that renewals take.
    fn lease(&mut self, name: &Resource, parts: &Parts) -> (&mut Staged, Millis) {
        let staged = self.row(name, parts);
        let now = parts.rows.read(name, |row| {
            if !staged.lease_changed {
                staged.lease = row.and_then(|row| row.lease.clone());
            }
            parts.clock.boottime()
        });
        (staged, now)
    }

    fn acquire(&mut self, want: Want, parts: &Parts) -> Acquired {
        let floor = self.floor;
        let (staged, now) = self.lease(&want.name, parts);
        let asked = staged
            .lease
            .as_ref()
            .map(|record| (record.asked(&want.holder, want.request_id.as_deref(), now), record));
        match asked {
            Some((Asked::Replay, record)) => {
                return Acquired::Replayed(staged.shown(record, now), now);
            }
            Some((Asked::Held { .. }, record)) => {
                return Acquired::Held(staged.shown(record, now), now);
            }
            Some((Asked::Free, _)) | None => {}
        }
        let latest = staged.lease.as_ref().map(|record| record.token);
        let Some(token) = next_token(latest, floor, parts.clock.wall_us()) else {
            return Acquired::Exhausted;
        };
        let over = staged.lease.take().filter(|record| record.phase == Phase::Granted);
        staged.set_lease(
            Record {
                token,
                holder: want.holder.clone(),
                request_id: want.request_id.clone(),
                until: Millis::NEVER,
                ttl_ms: want.ttl_ms,
                longest_ms: want.ttl_ms,
                phase: Phase::Granted,
            },
            Some((Duration::from_millis(want.ttl_ms.into()), Millis(0))),
        );
        // The sweep had not come to it yet; observers hear of the end before the beginning.
        self.changes.extend(over.map(|r| (LeaseChange::Expired, want.name.clone(), r.holder)));
        self.changes.push((LeaseChange::Granted, want.name.clone(), want.holder.clone()));
        Acquired::Granted(Claim::new(&want, token, self.commands.clone()))
    }

    fn extend(
        &mut self,
        name: &Resource,
        token: Token,
        ttl_ms: u32,
        parts: &Parts,
    ) -> Option<(Record, Millis)> {
        let (staged, now) = self.lease(name, parts);
        let mut record = staged.lease.clone()?;
        if record.token != token || !record.runs(now) {
            return None;
        }
        let ttl = Duration::from_millis(ttl_ms.into());
        let at_least = staged.runs.map_or(record.until, |(_, at_least)| at_least);
        let ttl = staged.runs.map_or(ttl, |(runs, _)| runs.max(ttl));
        record.longest_ms = record.longest_ms.max(ttl_ms);
        record.until = Millis::NEVER;
        staged.set_lease(record.clone(), Some((ttl, at_least)));
        Some((staged.shown(&record, now), now))
    }

    fn release(&mut self, name: &Resource, token: Token, parts: &Parts) -> bool {
        let (staged, _) = self.lease(name, parts);
        let Some(mut record) = staged.lease.clone() else { return false };
        match record.release(token) {
            Release::Done => {
                let holder = record.holder.clone();
                staged.set_lease(record, None);
                self.changes.push((LeaseChange::Released, name.clone(), holder));
                true
            }
            Release::Already => true,
            Release::Lost => false,
        }
    }

    fn bump(&mut self, name: &Resource, above: Option<Token>, parts: &Parts) -> Option<Token> {
        let floor = self.floor.max(above);
        let (staged, now) = self.lease(name, parts);
        let latest = staged.lease.as_ref().map(|record| record.token);
        let token = next_token(latest, floor, parts.clock.wall_us())?;
        // Of a lease that ran out between the sweep and now nobody has heard yet.
        let ended = staged.lease.as_ref().filter(|record| record.phase == Phase::Granted);
        let ended = ended.map(|record| match record.runs(now) {
            true => (LeaseChange::Revoked, name.clone(), record.holder.clone()),
            false => (LeaseChange::Expired, name.clone(), record.holder.clone()),
        });
        let mut record = staged.lease.take().unwrap_or_else(|| Record {
            token,
            holder: Holder::new("fence bump").expect("a plain name"),
            request_id: None,
            until: Millis(0),
            ttl_ms: 0,
            longest_ms: 0,
            phase: Phase::Revoked,
        });
        record.revoke(token);
        staged.set_lease(record, None);
        self.changes.extend(ended);
        Some(token)
    }

    /// Writes everything in one transaction, synced.
    pub fn write(
        &self,
        db: &Database,
        rows: &Rows,
        lazy: &[Lazy],
        seq: u64,
    ) -> Result<(), redb::Error> {
        let txn = db.begin_write()?;
        {
            let mut leases = txn.open_table(schema::LEASES)?;
            let mut marks = txn.open_table(schema::MARKS)?;
            let mut permits = txn.open_table(schema::PERMITS)?;
            for change in lazy {
                match change {
                    Lazy::GivenBack(name, id) => {
                        permits.remove((name.as_str(), id.incarnation.0, id.serial))?;
                    }
                    Lazy::Expired(name, token) => {
                        let record = rows.read(name, |row| row.and_then(|row| row.lease.clone()));
                        let same = |r: &Record| r.token == *token && r.phase == Phase::Expired;
                        if let Some(record) = record.filter(same) {
                            schema::put_lease(&mut leases, name, &record)?;
                        }
                    }
                }
            }
            for (name, staged) in &self.staged {
                if let Some(record) = staged.lease.as_ref().filter(|_| staged.lease_changed) {
                    schema::put_lease(&mut leases, name, record)?;
                }
                if let Some(mark) = staged.mark.filter(|_| staged.mark_changed) {
                    marks.insert(name.as_str(), mark.get())?;
                }
                for Permit { id, token } in &staged.taken {
                    permits.insert((name.as_str(), id.incarnation.0, id.serial), token.get())?;
                }
                // After the insertions: a permit may come and go within one batch, never return.
                for id in &staged.given_back {
                    permits.remove((name.as_str(), id.incarnation.0, id.serial))?;
                }
            }
        }
        Meta::write_commit(&txn, seq, self.mapping)?;
        txn.commit()?;
        Ok(())
    }

    /// Makes the batch what readers see. Returns what to tell observers, and what is left to be
    /// written some time: all that was given back, if the batch itself needed no commit.
    pub fn publish(
        &mut self,
        rows: &Rows,
        clock: &dyn Clock,
        deadlines: &mut BTreeSet<(Millis, Resource)>,
    ) -> (Vec<Told>, Vec<Lazy>) {
        let committed = self.must_commit();
        let mut lazy = Vec::new();
        for (name, staged) in std::mem::take(&mut self.staged) {
            if !committed {
                lazy.extend(staged.given_back.iter().map(|id| Lazy::GivenBack(name.clone(), *id)));
            }
            if staged.lease_changed || staged.mark_changed {
                rows.upsert(&name, |row| {
                    if staged.mark_changed {
                        row.mark = staged.mark;
                    }
                    if !staged.lease_changed {
                        return;
                    }
                    row.lease = staged.lease;
                    let Some(record) = &mut row.lease else { return };
                    if let Some((runs, at_least)) = staged.runs {
                        record.until = at_least.max(clock.boottime() + runs);
                        if record.until < row.indexed {
                            row.indexed = record.until;
                            deadlines.insert((record.until, row.name.clone()));
                        }
                    }
                });
            }
            if let Some(permits) = staged.permits {
                rows.set_permits(&name, permits);
            }
        }
        (std::mem::take(&mut self.changes), lazy)
    }

    /// Answers everybody.
    pub fn answer(self, done: Result<(), &StoreError>) {
        self.answers.into_iter().for_each(|answer| answer(done));
    }
}

// === impl Staged ===

impl Staged {
    fn set_lease(&mut self, record: Record, runs: Option<(Duration, Millis)>) {
        self.lease = Some(record);
        self.lease_changed = true;
        self.runs = runs;
    }

    fn permits(&mut self, name: &Resource, rows: &Rows) -> &mut Vec<Permit> {
        self.permits.get_or_insert_with(|| rows.permits(name))
    }

    /// The record with the deadline that it will have when it is published.
    fn shown(&self, record: &Record, now: Millis) -> Record {
        let mut record = record.clone();
        if let Some((runs, at_least)) = self.runs {
            record.until = at_least.max(now + runs);
        }
        record
    }
}
