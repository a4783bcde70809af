//! A small JSON service: typed paths, shared state, and problem responses.
//!
//! ```sh
//! curl -i localhost:8080/notes -H 'content-type: application/json' -d '{"text": "buy milk"}'
//! curl -i localhost:8080/notes/1
//! curl -i localhost:8080/notes/2
//! curl -i localhost:8080/notes?contains=milk
//! curl -i -X PATCH localhost:8080/notes
//! ```

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use blitz::extract::{Json, Path, Query, State};
use blitz::{App, IntoResponse, Problem, Response, Status};
use serde::{Deserialize, Serialize};

#[derive(Clone, Serialize, Deserialize)]
struct Note {
    text: String,
}

/// All notes, shared by the cores.
#[derive(Default)]
struct Notes(Mutex<BTreeMap<u64, Note>>);

impl Notes {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Note>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Deserialize)]
struct Search {
    #[serde(default)]
    contains: String,
}

fn main() -> blitz::Result {
    App::new()
        .state(Notes::default())
        .get("/notes", search)
        .post("/notes", create)
        .get("/notes/{id:u64}", read)
        .delete("/notes/{id:u64}", delete)
        .wrap(blitz::middleware::request_id())
        .run()
}

fn search(State(notes): State<Notes>, Query(search): Query<Search>) -> Json<BTreeMap<u64, Note>> {
    let mut found = notes.lock().clone();
    found.retain(|_, note| note.text.contains(&search.contains));
    Json(found)
}

fn create(State(notes): State<Notes>, Json(note): Json<Note>) -> Result<Response, Problem> {
    if note.text.is_empty() {
        return Err(Problem::new(Status::UNPROCESSABLE_CONTENT)
            .detail("a note needs a text")
            .with("field", "text"));
    }
    let mut notes = notes.lock();
    let id = notes.last_key_value().map_or(1, |(last, _)| last + 1);
    notes.insert(id, note.clone());
    let created = Json(note).into_response().with_status(Status::CREATED);
    Ok(created.header("location", format!("/notes/{id}")))
}

fn read(State(notes): State<Notes>, Path(id): Path<u64>) -> Result<Json<Note>, Problem> {
    let note = notes.lock().get(&id).cloned();
    note.map(Json)
        .ok_or_else(|| Problem::new(Status::NOT_FOUND).detail(format!("there is no note {id}")))
}

fn delete(State(notes): State<Notes>, Path(id): Path<u64>) -> Status {
    match notes.lock().remove(&id) {
        Some(_) => Status::NO_CONTENT,
        None => Status::NOT_FOUND,
    }
}
